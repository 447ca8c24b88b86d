"""The mind: observe, propose, attend, commit, act."""
