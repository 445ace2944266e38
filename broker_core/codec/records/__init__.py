"""What is stored: log records, properties, columns, index records, checkpoint and staging pages."""
