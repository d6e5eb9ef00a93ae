# cause: none
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.set_num_threads(1)
config = BertConfig(
    vocab_size=500, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512
)  # fmt: skip
rows = [
    {"input_ids": torch.randint(0, 500, (64,)), "attention_mask": torch.ones(64, dtype=torch.long), "labels": n % 2}
    for n in range(512)
]
arguments = TrainingArguments(
    "out", num_train_epochs=1000, per_device_train_batch_size=32, logging_steps=50, save_steps=500, report_to=[],
    use_cpu=True,
)  # fmt: skip
Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows).train()
