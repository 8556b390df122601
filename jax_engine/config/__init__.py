"""Settings of an engine: what each is, how it is checked, and how it is given."""
