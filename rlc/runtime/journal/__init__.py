"""What a run writes: the journal, the folder around it, and the records of its other files."""
