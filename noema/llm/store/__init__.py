"""All SQL of the model service: `calls` on record, `budgets` and what is reserved in them."""
