"""What everything else stands on: time, ids, errors, identity, canonical bytes."""
