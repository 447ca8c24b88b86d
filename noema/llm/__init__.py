"""The model as a replaceable service; at present what turns text into vectors."""
