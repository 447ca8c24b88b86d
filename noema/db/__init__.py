"""PostgreSQL: the embedded server, transactions, migrations, wake-ups."""
