"""Stock operators of reactivex, lifted so that demand is kept through them."""
