"""The SDK: methods, calls, streams, tasks, the agent itself."""
