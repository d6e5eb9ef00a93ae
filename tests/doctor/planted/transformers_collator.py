# cause: slow-collate
import random

import torch
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)
VOCABULARY = {word: number for number, word in enumerate("abcdefghijklmnopqrstuvwxyz ")}


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(len(VOCABULARY), 32)
        self.head = torch.nn.Linear(32, 2)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.embedding(input_ids))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def tokenize_and_pad(examples):
    longest = max(len(example["text"]) for example in examples)
    rows = []
    for example in examples:
        tokens = [VOCABULARY[letter] for letter in example["text"]]
        tokens += [VOCABULARY[" "]] * (longest - len(tokens))
        rows.append(tokens)
    return {
        "input_ids": torch.tensor(rows),
        "labels": torch.tensor([example["label"] for example in examples]),
    }


letters = "abcdefghijklmnopqrstuvwxyz "
texts = [{"text": "".join(random.choices(letters, k=6000)), "label": number % 2} for number in range(500)]
arguments = TrainingArguments(
    "out", num_train_epochs=1000, per_device_train_batch_size=32, logging_steps=50, report_to=[], use_cpu=True,
    save_strategy="no", remove_unused_columns=False, disable_tqdm=True,
)  # fmt: skip
Trainer(Classifier(), arguments, train_dataset=texts, data_collator=tokenize_and_pad).train()
