"""Stage 3: partials -> counts per problem."""
