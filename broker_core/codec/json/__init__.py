"""The JSON dialect of RocketMQ's Java side (fastjson)."""
