"""Who may come in, and what he may do: the home folder, the trust list, the permission matrix.

Knows: files of one OS user. Refuses to know: links, sessions, sockets; it is asked, and answers with a
reason. Called by: runtime (grants), agent (verdicts), cli (editing).
"""
