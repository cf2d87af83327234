"""Stage 5. Scores per problem -> paired comparisons of all models, and how far their ranks are settled."""
