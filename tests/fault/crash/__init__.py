"""Real processes, killed with SIGKILL at random and at every failpoint, and what must hold afterwards.

`python -m tests.fault.crash --kills 200 --calls 2000 --streams 20` (`make crash`). `worker` and `planner` are the two
programs, `drive` starts, kills and restarts them, `check` looks at what they left.
"""
