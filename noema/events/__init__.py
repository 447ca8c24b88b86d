"""The append-only log: model, append, group-committing writer, feed, derivations."""
