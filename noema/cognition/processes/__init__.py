"""The faculties that propose thoughts without a model."""
