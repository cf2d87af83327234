"""Stage 5: scores per problem -> paired comparisons of models, and ranges of their ranks."""
