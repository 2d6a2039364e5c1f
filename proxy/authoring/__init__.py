"""What helps the authors of policies: running test cases, explaining calls, replaying records, JSON Schemas."""
