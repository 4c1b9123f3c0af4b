"""Small models of token sequences, as the theory parts of the papers use them."""
