"""`valueFormat=canal-json` and `debezium-json`: changes of database tables."""
