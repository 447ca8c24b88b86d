"""Ways from text to vectors: hashing, a local model, and services over HTTP."""
