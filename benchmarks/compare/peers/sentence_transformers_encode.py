"""sentence-transformers' `encode`, with texts, sorted by length and in batches as it is used."""

import os

from wire import serve, text_of, vector_as_tokens


def load(settings):
    import sentence_transformers
    import torch

    torch.set_num_threads(os.cpu_count())
    model = sentence_transformers.SentenceTransformer(settings["model"], device="cpu")
    model = model.to(getattr(torch, settings["dtype"]))

    def run(clock):
        texts = [text_of(one) for one in clock.requests]
        vectors = model.encode(texts, batch_size=settings["batch_size"])
        now = clock.now()
        for index, vector in enumerate(vectors):
            clock.add(index, 0, vector_as_tokens(vector), now)

    versions = {"torch": torch.__version__}
    return run, versions | {"sentence-transformers": sentence_transformers.__version__}


if __name__ == "__main__":
    serve(load)
