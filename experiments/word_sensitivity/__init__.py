"""Word sensitivity: how much can the worst change of one word do to random features and attention?

Bombari and Mondelli, *Towards Understanding the Word Sensitivity of Attention Layers* (arXiv
2402.02969). Random features relu(V X) notice one of n words as little as 1/√n; random attention
notices it fully, whatever n, because a softmax can be saturated. So a linear model of attention can
learn that one word turns a text into its opposite, and one of random features cannot.

    python -m jaxsens.run --exp word-sensitivity
    python -m jaxsens.run --exp word-sensitivity --preset small
    python -m jaxsens.run --exp word-sensitivity --reuse RUN …
        also the models of runs of `language` and `vision`, untrained and trained
    python -m jaxsens.run --exp word-sensitivity --embeddings DIR --data-dir DATA
        also IMDB's reviews in BERT's embeddings: DIR has model.safetensors and vocab.txt of
        bert-base-uncased

All maps are measured on one grid of widths d and numbers of words n, by exact algorithms that need
no matrix of D × D weights, D = nd (except for deep random features, whose layers are such).
"""
