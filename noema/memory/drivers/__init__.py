"""Retrieval engines behind one Protocol; each sees one caller's view and nothing else."""
