"""Stage 4. Counts per problem -> summaries of models, of their subjects and of slices."""
