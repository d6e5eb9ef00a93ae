# cause: host-work-in-the-loop
import time

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments


class Notify(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        self.ping(state.global_step)

    def ping(self, step):
        time.sleep(0.015)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(64, 4)

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


data = [{"x": torch.randn(64), "labels": i % 4} for i in range(2000)]
arguments = TrainingArguments(
    output_dir="never_written",
    per_device_train_batch_size=16,
    num_train_epochs=100,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    logging_strategy="no",
    disable_tqdm=True,
)
Trainer(Model(), arguments, train_dataset=data, callbacks=[Notify()]).train()
