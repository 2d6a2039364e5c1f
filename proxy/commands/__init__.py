"""The commands for authors of policies, one module each: its options, and how what it found is shown."""
