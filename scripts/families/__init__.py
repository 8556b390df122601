"""docs/families.md: what each model family is made of, by its specifications.

python -m scripts.families     writes the page
"""
