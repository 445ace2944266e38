"""Apache Kafka and Apache's store in Java, started to be measured beside ours."""
