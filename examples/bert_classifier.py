"""A Hugging Face classifier, nothing but the model handed over: python examples/bert_classifier.py

Sentences of 4 to 24 words, of which each is about the first or the second of two topics.
"""

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import brim

VOCABULARY, PADDING, TOPIC_WORDS = 200, 0, 40
Batch = dict[str, Tensor]


def make_sentences(count: int, seed: int = 0) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    sentences = []
    for number in range(count):
        label = number % 2
        length = int(torch.randint(4, 25, (), generator=generator))
        words = torch.randint(100, VOCABULARY, (length,), generator=generator)
        about = torch.rand(length, generator=generator) < 0.3
        topic = 10 + label * TOPIC_WORDS + torch.randint(TOPIC_WORDS, (length,), generator=generator)
        sentences.append({"input_ids": torch.where(about, topic, words), "labels": torch.tensor(label)})
    return sentences


def pad(sentences: list[Batch]) -> Batch:
    ids = [sentence["input_ids"] for sentence in sentences]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PADDING)
    labels = torch.stack([sentence["labels"] for sentence in sentences])
    return {"input_ids": padded, "attention_mask": (padded != PADDING).long(), "labels": labels}


def make_model(width: int = 64) -> BertForSequenceClassification:
    torch.manual_seed(0)
    size = {"hidden_size": width, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 2 * width}
    return BertForSequenceClassification(BertConfig(vocab_size=VOCABULARY, num_labels=2, **size))


def make_trainer(sentences: int = 2_000, epochs: int = 4, **settings: object) -> brim.Trainer:
    data = make_sentences(sentences)
    split = len(data) * 4 // 5
    train = brim.Loader(data[:split], batch_size=32, collate_fn=pad)
    valid = brim.Loader(data[split:], batch_size=64, shuffle=False, collate_fn=pad)
    return brim.Trainer(make_model(), train, valid, optimizer="AdamW", lr=1e-3, epochs=epochs, **settings)


if __name__ == "__main__":
    print(make_trainer().fit().metrics)
