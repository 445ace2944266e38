"""`valueFormat=protobuf`."""
