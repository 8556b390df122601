"""Where the time of a step goes, part by part, beside what the machine could do."""
