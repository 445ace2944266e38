"""`valueFormat=avro`."""
