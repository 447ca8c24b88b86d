"""The commands of `noemactl`, one module per group; each names its own in `COMMANDS`."""
