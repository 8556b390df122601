"""Hours of random tests, in rounds of parts that take some minutes each, and their record."""
