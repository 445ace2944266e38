"""Half messages: prepare, check, commit, roll back, resume."""
