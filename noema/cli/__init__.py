"""The two commands: noema runs the daemon, noemactl talks to it."""
