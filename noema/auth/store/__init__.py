"""All SQL of access: `doors` for what lets in, `people` for whom. Hashes of secrets only."""
