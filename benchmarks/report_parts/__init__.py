"""The page of the report and its charts."""
