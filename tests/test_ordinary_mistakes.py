"""What people write by mistake, and the words of the sentence they get: no exception of Python's or torch's."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
import torchmetrics
import transformers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import brim

X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True)
LABELS = torch.arange(16) % 3
PICTURES = torch.rand(16, 3, 5, 5, generator=torch.Generator().manual_seed(1))
TOKENS = {"input_ids": torch.ones(16, 4, dtype=torch.int64), "label": LABELS}
BERT = {"input_ids": torch.ones(16, 4, dtype=torch.int64), "labels": LABELS % 2}
BOTH = {"x": X, "y": Y, "labels": Y}
FRAME = pd.DataFrame(X.numpy(), columns=list("abcd"))


class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 1)


class LitNet(Net):
    def training_step(self, batch, number):
        return self(batch[0]).mean()


class Accuracy:
    def evaluate(self, model):
        return {"accuracy": 1.0}


class Vector(Accuracy):
    monitor, higher_is_better = "f1", True

    def evaluate(self, model):
        return {"f1": torch.ones(3)}


class Number(Vector):
    def evaluate(self, model):
        return 0.5


class LightningHook(brim.Callback):
    def on_train_batch_end(self, trainer, *rest): ...


class FitsAgain(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        trainer.fit()


class HalfState(brim.Callback):
    def state_dict(self):
        return {"n": 1}


class ShortHook(brim.Callback):
    def on_step_end(self, trainer): ...


def backward(model, batch):
    loss = nn.functional.mse_loss(model(batch[0]), batch[1])
    loss.backward()
    return loss


def step(model, **settings):
    return brim.Step(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), **settings)


def forecast(**job):
    recipe = {"model": Net, "batch": lambda n: ((torch.empty(n, 4),), {}), "loss": torch.mean, "card": "RTX 4090"}
    return brim.forecast(**{**recipe, **job}, batch_size=4)


class Unforward(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def foward(self, x):
        return self.layer(x)


class Shallow(Net):
    def calculate_loss(self): ...


class OwnLoss(Net):
    @torch.jit.export
    def calculate_loss(self, batch: torch.Tensor):
        return self.forward(batch).mean()


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 1)]


class InPlace(Net):
    def forward(self, x):
        h = super().forward(x).sigmoid()
        h *= h
        return h


class OnGpu(Net):
    def forward(self, x):
        return super().forward(x.cuda())


class ByName(Net):
    def forward(self, *, features):
        return super().forward(features)


class Image:
    """As PIL's: no tensor, no array."""


class Learned(nn.MSELoss):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))


def bert(kind):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return getattr(transformers, kind)(transformers.BertConfig(vocab_size=9, **sizes))


def t5():
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=9, **sizes))


def conv():
    return nn.Sequential(nn.Conv2d(3, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def penalized(model, batch):
    x = batch[0].clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return slope.square().mean()


def of_dict(model, batch):
    return nn.functional.mse_loss(model(batch["x"]), batch["y"])


def trainer(model=None, data=None, **settings):
    settings = {"loss_fn": nn.MSELoss(), "device": "cpu", "threads": 1, **settings}
    return brim.Trainer(Net() if model is None else model, (X, Y) if data is None else data, **settings)


# What the code below may name.
NAMES = {**globals(), "copy": copy, "np": np, "pickle": pickle, "torchmetrics": torchmetrics, "DataLoader": DataLoader,
         "TensorDataset": TensorDataset, "WeightedRandomSampler": WeightedRandomSampler}  # fmt: skip

MISTAKES = [
    ("trainer(data=(X, Y > 0), loss_fn=nn.BCEWithLogitsLoss()).fit()", "hand over y.float()"),
    ("trainer(data=(X.to_sparse(), Y)).fit()", "hand over x.to_dense()"),
    ("trainer(data=TensorDataset(X.to_sparse_csr(), Y)).fit()", "hand over x.to_dense()"),
    ("trainer(data=(X * float('nan'), Y)).fit()", "whose tensor 0.0 holds NaN or infinity; clean the data"),
    ("trainer(data=BOTH).fit()", "this one is a dict with x, y, labels"),
    ("trainer(data=FRAME).fit()", "this one is a tensor of shape (16, 4)"),
    ("trainer(data=(X, Y, LABELS)).fit()", "this one is a tuple of 3"),
    ("trainer(bert('BertModel'), TOKENS, loss_fn=None).fit()", "take a model with a head for the task"),
    ("trainer(bert('BertForSequenceClassification'), TOKENS, loss_fn=None).fit()", "is a dict with input_ids, label"),
    ("brim.Loader(TensorDataset, 4)", "hand over an object of it: TensorDataset(...)"),
    ("trainer(data=TensorDataset).fit()", "its objects may be: TensorDataset(...)"),
    ("brim.Loader((X, Y), target='y')", "no argument target: it is not a known name"),
    ("brim.DevicePrefetcher()", "missing a required argument: 'device'"),
    ("brim.MLflowLogger(experimnt='x')", "did you mean experiment=?"),
    ("brim.cached([X], abs)", "missing a required argument: 'folder'"),
    ("step(Net())(X, Y)", "step((inputs, target))"),
    ("step(Net())((X.numpy(), Y))", "a layer gets a numpy.ndarray"),
    ("trainer(compile='yes')", "use False, True, 'auto', 'default'"),
    ("trainer(data=brim.Loader([(X[0], Y[0])] * 4, 2, collate_fn=lambda s: 1 / 0)).fit()", "collate_fn failed"),
    ("trainer(epochs=2).fit(resume=f'{trainer().fit().run}/checkpoints/step-000000001')", "it is within one: name"),
    # what would have no effect, or another one than it seems
    ("trainer(mode='max', eval_data=(X, Y))", "monitor= names none"),
    ("trainer(scheduler=lambda optimizer: None).fit()", "must return a scheduler"),
    ("trainer(callbacks=[HalfState()])", "no load_state_dict"),
    ("trainer().predict(X, output=1)", "the model returns a tensor"),
    ("trainer(keep_best=3).fit()", "there is no eval_data"),
    ("trainer(monitor='loss').fit()", "there is no eval_data"),
    ("trainer(monitor='val_loss', eval_data=(X, Y)).fit()", "did you mean 'loss'?"),
    ("trainer(optimizer={'weight_decay': 0.1, 'no_decay': ['norm']}).fit()", "which matches no parameter"),
    ("trainer(loss_fn=Learned()).fit()", "which the optimizer does not hold"),
    ("trainer(data=[BOTH], eval_data=[BOTH], metrics='mse', loss_fn=of_dict).fit()", "'labels' or 'y'"),
    ("trainer(sliceable='no', micro_batch=4)", "use None, True, False"),
    ("trainer(gradient_accumulation_steps=2, accumulate_grad_batches=4)", "two names of one setting"),
    ("trainer(optimizer='').fit()", "is not in torch.optim"),
    ("step(Net(), clip_norm=-1)", "must be a number above 0"),
    ("step(Net(), clip_norm='1')", "must be a number above 0"),
    ("step(Net(), sliceable='no')", "use None, True, False"),
    ("brim.Loader((X, Y), pin_memory='no')", "True or False"),
    ("brim.Loader((X, Y), persistent_workers='no')", "True or False"),
    # names of other trainers, and typing errors
    ("trainer(max_epochs=3)", "max_epochs: it is epochs="),
    ("trainer(num_train_epochs=3)", "it is epochs="),
    ("trainer(gradient_clip_val=1.0)", "it is clip_norm="),
    ("trainer(max_grad_norm=1.0)", "it is clip_norm="),
    ("trainer(learning_rate=1e-3)", "it is lr="),
    ("trainer(devices=2)", "torchrun --nproc-per-node="),
    ("trainer(accelerator='gpu')", "it is device= here"),
    ("trainer(per_device_train_batch_size=8)", "brim.Loader(data, batch_size=...)"),
    ("trainer(batch_size=8)", "brim.Loader(data, batch_size=...)"),
    ("trainer(weight_decay=0.1)", "optimizer={'name': 'AdamW', 'weight_decay': ...}"),
    ("trainer(warmup_steps=10)", "brim.Schedule("),
    ("trainer(fp16=True)", "precision='16-mixed'"),
    ("trainer(val_dataloaders=[])", "it is eval_data="),
    ("trainer(enable_progress_bar=False)", "the bar is shown in a terminal only"),
    ("trainer(default_root_dir='x')", "it is run_dir="),
    ("trainer(ckpt_path='x')", "Trainer.fit(resume=...)"),
    ("trainer(epocs=3)", "did you mean epochs=?"),
    ("trainer().fit(epochs=3)", "it is Trainer(epochs=...)"),
    ("trainer().fit(ckpt_path='x')", "it is resume="),
    ("trainer().evaluate(dataloaders=[])", "it is data="),
    ("brim.Loader((X, Y), batchsize=4)", "did you mean batch_size=?"),
    ("brim.Trainer(Net())", "missing a required argument: 'train_data'"),
    ("brim.Trainer(Net(), X, X, X, nn.MSELoss())", "too many positional arguments"),
    ("trainer().validate()", "call trainer.evaluate(data)"),
    ("trainer().test()", "call trainer.evaluate(test_data)"),
    ("trainer().train()", "call trainer.fit()"),
    ("trainer().save_checkpoint('x.ckpt')", "checkpoints are written by themselves"),
    ("trainer().save_model('x')", "fit(save_model=True"),
    ("trainer().push_to_hub()", "trainer.model.push_to_hub(...)"),
    ("trainer().train_dataset", "it is train_data"),
    ("trainer().current_epoch", "callbacks are handed epoch and step"),
    ("trainer().log('a', 1, prog_bar=True)", "the bar shows the loss"),
    ("trainer().log('a')", "takes a name and a number"),
    ("brim.Loss(1)", "it takes total, count"),
    # fit, evaluate, predict
    ("trainer().fit(save_model=True, model_path='/proc/model.pt')", "cannot be written"),
    ("trainer().fit(DataLoader(TensorDataset(X, Y)))", "fit takes no model and no data"),
    ("trainer().fit(Net())", "fit takes no model and no data"),
    ("trainer().fit(save_model='model.pt')", "fit(save_model=True, model_path='model.pt')"),
    ("trainer(callbacks=[FitsAgain()]).fit()", "fit is running"),
    ("trainer().evaluate(X, Y)", "trainer.evaluate((x, y))"),
    ("trainer().fit(resume=True)", "resume='auto'"),
    ("trainer().fit(resume='nowhere')", "is not a run folder"),
    ("trainer().fit(resume='auto')", "run_dir="),
    ("trainer().fit(save_model=True, model_path='model.bin')", "must end in"),
    ("trainer().evaluate()", "nothing to evaluate on"),
    ("trainer().predict([])", "nothing to predict"),
    ("trainer().predict(X, output=1.5)", "output=1.5"),
    ("trainer().predict(X, output='logits')", "output='logits' is not in what the model returns"),
    ("trainer().predict(DataLoader(TensorDataset(X), sampler=WeightedRandomSampler([1.0] * 16, 16)))",
     "without sampler"),
    ("brim.load(None)", "named by a path"),
    ("copy.deepcopy(trainer())", "copy the model"),
    ("pickle.dumps(trainer())", "copy the model"),
    # a loop of one's own, and forecasts
    ("step(Net(), scheduler='cosine')", "scheduler.step() after step(batch)"),
    ("step(Net(), gradient_accumulation_steps=2)", "step(first, second)"),
    ("step(Net(), lr_scheduler='cosine')", "scheduler.step() after step(batch)"),
    ("step(Net()).backward()", "loss = step(batch)"),
    ("step(Net()).zero_grad()", "loss = step(batch)"),
    ("brim.DevicePrefetcher('gpu')", "use 'cuda', 'cuda:1' or 'cpu'"),
    ("brim.DevicePrefetcher(DataLoader(X), 'cpu')", "brim.DevicePrefetcher('cuda')(iter(loader))"),
    ("brim.move_data_to_device(X, 'gpu')", "use 'cuda', 'cuda:1' or 'cpu'"),
    ("brim.Loader(brim.Loader((X, Y)))", "use it as it is"),
    ("forecast(model='gpt2')", "model=lambda: MyModel()"),
    ("forecast(batch=X)", "batch=lambda n:"),
    ("forecast(optimizer='adam')", "optimizer=lambda parameters:"),
    ("forecast(loss='mse')", "loss=lambda output:"),
    # models
    ("trainer(Unforward()).fit()", "write def forward(self, x)"),
    ("trainer(nn.ModuleList([Net()])).fit()", "nn.Sequential(*layers)"),
    ("trainer(Net)", "hand over an object of it: Net("),
    ("trainer(lambda x: x)", "no parameters to train"),
    ("trainer('bert-base-uncased')", "a name, not a model"),
    ("trainer(Net().state_dict())", "load_state_dict"),
    ("trainer(Net().requires_grad_(False)).fit()", "nothing to train"),
    ("trainer(LitNet(), loss_fn=None)", "model.training_step(batch, 0)"),
    ("trainer(nn.Bilinear(4, 4, 1)).fit()", "needs 'input2' as well"),
    ("trainer(nn.LSTM(4, 1)).fit()", "LSTM returns a tuple"),
    ("trainer(nn.Linear(5, 1)).fit()", "takes 5 features and gets 4"),
    # losses
    ("trainer(loss_fn=None)", "no loss_fn was given"),
    ("trainer(loss_fn=nn.MSELoss)", "is a class"),
    ("trainer(loss_fn='mse')", "cannot be called"),
    ("trainer(loss_fn=nn.MSELoss(reduction='none'))", "use reduction='mean'"),
    ("trainer(loss_fn=lambda model, x, y: 0)", "loss_fn(prediction, target)"),
    ("trainer(loss_fn=lambda a, b: a - b)", "loss_fn(model, batch)"),
    ("trainer(loss_fn=lambda model, batch: model(batch[0])).fit()", "must be a scalar"),
    ("trainer(loss_fn=lambda model, batch: model(batch[0]).mean().item()).fit()", "must be a scalar"),
    ("trainer(loss_fn=lambda model, batch: model(batch[0]).mean().detach()).fit()", "does not depend on the weights"),
    ("trainer(loss_fn=penalized).evaluate([(X, Y)])", "takes them there within torch.enable_grad()"),
    ("trainer(loss_fn=lambda model, batch: brim.Loss(model(batch[0]), 2)).fit()", "a tensor with one number"),
    ("trainer(data=(X, Y[:, 0]), loss_fn=nn.BCEWithLogitsLoss()).fit()", "y.reshape(-1, 1)"),
    ("trainer(loss_fn=lambda model, batch: torch.tensor(model(batch[0]).numpy().mean())).fit()", "with torch"),
    ("trainer(loss_fn=backward).fit()", "leaves backward() and the optimizer to the trainer"),
    ("trainer(loss_fn=lambda model, batch: {'mse': model(batch[0]).mean()}).fit()", "without 'loss'"),
    ("trainer(nn.LazyLinear(1))", "call it once before"),
    ("trainer(nn.Linear(4, 1, device='meta'))", "to_empty(device='cpu')"),
    ("step(Net())((X.double(), Y))", "x.float()"),
    ("brim.forecast(Net())", "missing a required argument: 'batch'"),
    ("trainer(optimizer={'name': 'AdamW', 'nodecay': ['bias']}).fit()", "did you mean 'no_decay'?"),
    ("trainer(Shallow(), loss_fn=None)", "write def calculate_loss(self, batch)"),
    ("trainer(InPlace()).fit()", "changed in place"),
    ("trainer(OnGpu()).fit()", ".to(x.device)"),
    ("trainer(ByName()).fit()", "give it a parameter for each"),
    ("trainer(loss_fn=lambda model, batch: model(*batch).mean()).fit()", "is called with 3 arguments and takes 2"),
    ("trainer(loss_fn=nn.functional.mse_loss(X, X, reduction='none'))", "cannot be called"),
    ("trainer(nn.Linear(4, 1).to(torch.complex64)).fit()", "x.cfloat()"),
    ("trainer(data=BOTH, loss_fn=lambda model, batch: model(batch.x).mean()).fit()", "batch['name'] for one of these"),
    ("trainer(loss_fn=lambda model, batch: brim.Loss(model(batch[0]).sum(), None)).fit()", "of at least 0"),
    ("trainer(loss_fn=lambda model, batch: brim.Loss(model(batch[0]).sum(), -1)).fit()", "of at least 0"),
    ("trainer(loss_fn=lambda model, batch: brim.Loss(model(batch[0]).sum(), torch.ones(2))).fit()", "with one"),
    ("trainer(data=(X, LABELS), loss_fn=nn.CrossEntropyLoss()).fit()", "an output for each class"),
    ("trainer(loss_fn=nn.CrossEntropyLoss()).fit()", "nn.MSELoss() for numbers"),
    ("trainer(nn.Linear(4, 3), (X, LABELS), loss_fn=nn.KLDivLoss()).fit()", "for classes use nn.CrossEntropyLoss()"),
    ("trainer(nn.Linear(4, 3), (X, nn.functional.one_hot(LABELS, 5).float()), loss_fn=nn.CrossEntropyLoss()).fit()",
     "y.argmax(1) of one-hot rows"),
    # batches of texts
    ("trainer(bert('BertForSequenceClassification'), {**BERT, 'text': ['a'] * 16}, loss_fn=None).fit()",
     "'text' is a list of 16 (str)"),
    ("trainer(bert('BertForSequenceClassification'), {'ids': BERT['input_ids'], 'labels': LABELS}, loss_fn=None).fit()",
     "it has no 'input_ids', and is a dict with ids, labels"),
    ("trainer(bert('BertForSequenceClassification'), {k: v[:4].flatten()[:4] for k, v in BERT.items()}, "
     "loss_fn=None).fit()", "of shape (samples, tokens)"),
    ("trainer(t5(), {'input_ids': BERT['input_ids']}, loss_fn=None).fit()", "needs 'labels' as well"),
    ("trainer(bert('BertForSequenceClassification'), BERT, loss_fn=None).predict({'ids': BERT['input_ids']})",
     "it has no 'input_ids'"),
    ("trainer(bert('BertForSequenceClassification'), BERT, loss_fn=lambda model, batch: model(batch).loss).fit()",
     "model(**batch)"),
    ("trainer(peft_config=1)", "peft.get_peft_model(model, config)"),
    # pictures and norms
    ("trainer(conv(), ((PICTURES * 255).byte(), LABELS), loss_fn=nn.CrossEntropyLoss()).fit()", "x.float() / 255"),
    ("trainer(conv(), (PICTURES.movedim(1, -1), LABELS), loss_fn=nn.CrossEntropyLoss()).fit()", "permute(0, 3, 1, 2)"),
    ("trainer(conv(), (PICTURES[:, :1], LABELS), loss_fn=nn.CrossEntropyLoss()).fit()", "in_channels=1"),
    ("trainer(nn.Sequential(Net(), nn.BatchNorm1d(1)), brim.Loader((X, Y), 5)).fit()", "drop_last=True"),
    ("trainer(conv(), [(Image(), 0)] * 4, loss_fn=nn.CrossEntropyLoss()).fit()", "v2.ToImage()"),
    ("trainer(nn.Linear(4, 3), [(x, 'cat') for x in X], loss_fn=nn.CrossEntropyLoss()).fit()", "{'cat': 0, 'dog': 1}"),
    ("trainer(data=torch.utils.data.random_split(TensorDataset(X, Y), [8, 8])).fit()", "2 data sets or loaders"),
    ("trainer(eval_data=[DataLoader(TensorDataset(X, Y))] * 2).fit()", "give those of eval_data names"),
    ("trainer().load('model.pt')", "load_state_dict(torch.load(path))"),
    ("trainer().load_weights('model.pt')", "load_state_dict(torch.load(path))"),
    ("trainer().summary()", "print(trainer.model)"),
    ("trainer().predict_proba(X)", "softmax(1)"),
    ("brim.load(trainer().fit(), Net())", "it is its .run"),
    ("brim.load('model.pt', Net())", "a file of weights"),
    ("trainer().should_stop = True", "call trainer.stop('why')"),
    ("trainer().epochs = 5", "make a new one"),
    ("trainer().fit().loss", "it has as_json, ended, epochs, metrics, run, seconds, sentence, steps"),
    ("trainer().fit().best", "it has as_json, ended"),
    ("trainer(eval_data=(X, Y)).fit().loss", "it is metrics['loss']"),
    ("trainer().fit().history", "metrics.jsonl of its .run folder"),
    ("brim.load(trainer().fit().run, Net)", "hand over an object of it: Net("),
    # metrics
    ("trainer(nn.Linear(4, 3), (X, LABELS), eval_data=(X, LABELS), loss_fn=nn.CrossEntropyLoss(), "
     "metrics=torchmetrics.classification.MulticlassAccuracy(5)).fit()", "make MulticlassAccuracy for"),
    ("trainer(eval_data=(X, Y), metrics={'r2': torchmetrics.functional.r2_score})", "lambda outputs, batch: r2_score("),
    ("trainer(eval_data=(X, Y), monitor=['loss']).fit()", "the name of one metric"),
    ("trainer(eval_data=(X, Y), monitor='mae').fit()", "add metrics='mae'"),
    ("trainer(eval_data=(X, Y), metrics='mean_absolute_error')", "did you mean 'mae'?"),
    ("trainer(eval_data=(X, Y), metrics='categorical_accuracy')", "did you mean 'accuracy'?"),
    ("trainer(eval_data=(X, Y), metrics='auc')", "an object of torchmetrics"),
    # data
    ("trainer(data=(FRAME, pd.Series(['cat', 'dog'] * 8))).fit()", "the Series holds no numbers: y (str)"),
    ("trainer(data=[]).fit()", "train_data is empty"),
    ("trainer(eval_data=[]).fit()", "eval_data is empty"),
    ("trainer(test_data=(X[:0], Y[:0])).fit()", "test_data: the data is empty"),
    ("trainer(data='train.csv').fit()", "train_data: 'train.csv' is no data"),
    ("trainer(data=iter([(X, Y)])).fit()", "can be read only once"),
    ("trainer(data=(X, Y[:3])).fit()", "different lengths"),
    ("trainer(data=(X.double(), Y)).fit()", "x.float()"),
    ("trainer(data=(FRAME.astype('float64'), Y)).fit()", "x.astype('float32')"),
    ("trainer(data=(FRAME.assign(city='x'), Y)).fit()", "city"),
    ("trainer(nn.Linear(4, 3), (X, LABELS.float()), loss_fn=nn.CrossEntropyLoss()).fit()", "y.long()"),
    ("trainer(nn.Linear(4, 3), (X, LABELS + 1), loss_fn=nn.CrossEntropyLoss()).fit()", "count from 0"),
    ("trainer(nn.Linear(4, 3), (X, LABELS[:, None]), loss_fn=nn.CrossEntropyLoss()).fit()", "y.squeeze(1)"),
    ("trainer(data=(X, LABELS[:, None]), loss_fn=nn.BCEWithLogitsLoss()).fit()", "y.float()"),
    ("trainer(data=(X, Y[:, 0])).fit()", "y.reshape(-1, 1)"),
    ("trainer(data=[{'x': X, 'y': Y}]).fit()", "(inputs, target) pairs"),
    ("brim.Loader(DataLoader(TensorDataset(X)))", ".dataset"),
    ("brim.Loader([])", "is empty"),
    ("brim.Loader(X, Y)", "data is one argument"),
    ("brim.Loader((X, Y), shuffle='no')", "True or False"),
    ("brim.Loader((X, Y), 0)", "batch_size=0"),
    ("trainer(data=(X.tolist(), Y.tolist())).fit()", "(torch.tensor(X), torch.tensor(y))"),
    ("brim.Loader((X.tolist(), Y.tolist()))", "(torch.tensor(X), torch.tensor(y))"),
    ("trainer(data=(X, ['cat'] * 16)).fit()", "y is a list of 16 (str)"),
    ("trainer(data=(X, Y.tolist()[:3])).fit()", "y is a list of 3 (list)"),
    ("brim.Loader((X, ['cat'] * 16))", "y is a list of 16 (str)"),
    ("trainer(nn.Linear(4, 3), (FRAME, pd.Series(['cat', 'dog'] * 8)), loss_fn=nn.CrossEntropyLoss()).fit()",
     "cat.codes.astype('int64')"),
    ("trainer(data=(FRAME, FRAME['b'])).fit()", "a Series: y.to_frame()"),
    ("brim.Trainer(Net(), X, Y, loss_fn=nn.MSELoss(), device='cpu').fit()", "(x, y) is one tuple"),
    ("trainer(data=(X, None)).fit()", "y is None"),
    ("trainer(data=(None, Y)).fit()", "X is None"),
    ("trainer(data=(X, 3)).fit()", "y is an int"),
    ("trainer(data=(X, torch.tensor(1.0))).fit()", "y is a Tensor without rows"),
    ("brim.Loader((X, Y), seed='a')", "must be a whole number"),
    ("brim.Loader((X, Y), generator=torch.Generator())", "a function of seed="),
    # calls of what is no trainer
    ("brim.load('x', Net(), device='cuda')", "load has no argument device"),
    ("brim.load('x', Net(), strict=False)", "it takes run, model"),
    ("brim.check_gpu_memory('cuda:0')", "it takes nothing"),
    ("brim.estimate_memory_usage(Net())", "missing a required argument: 'batch_size'"),
    ("brim.move_data_to_device(X)", "missing a required argument: 'device'"),
    ("brim.move_data_to_device(X, 'cpu', blocking=True)", "did you mean non_blocking=?"),
    ("forecast(card=80)", "is no name of a card"),
    ("forecast(optimizer=lambda parameters: None)", "must return a torch optimizer"),
    ("forecast(memory='8GiB')", "it limits brim.largest_batch"),
    ("step(Net(), lr=0.1)", "torch.optim.AdamW(model.parameters(), lr=...)"),
    ("step(Net(), max_epochs=3)", "a loop of your own counts them itself"),
    ("step(Net(), device='cpu')", "model.to(device)"),
    ("step(Net(), metrics='mae')", "a loop of your own computes its own"),
    ("step(Net(), callbacks=[])", "a loop of your own calls what it wants"),
    # fastai
    ("trainer().fit_one_cycle(3)", "OneCycleLR(optimizer, ...)"),
    ("trainer().lr_find()", "Trainer(lr=..., max_steps=...)"),
    ("trainer().fine_tune(3)", "a Trainer for the second stage"),
    ("trainer().get_preds()", "trainer.predict(data)"),
    ("trainer().cuda()", "Trainer(device=...)"),
    ("trainer(callbacks=[type('Late', (brim.Callback,), {'after_batch': print})()])", "the hook here is on_step_end"),
    ("trainer(eval_data=(X, Y)).fit().accuracy", "what fit returns has .metrics"),
    ("trainer(epochs=2).fit(resume=trainer().fit())", "which is .run of what fit returned"),
    ("trainer(use_multi_gpu=4)", "must be True or False"),
    ("trainer(nn.Linear(4, 3), (X, LABELS), eval_data=(X, LABELS), loss_fn=nn.CrossEntropyLoss(), "
     "metrics=torchmetrics.MeanMetric()).fit()", "the metric 'MeanMetric' cannot take"),
    # evaluators and callbacks
    ("trainer(eval_data=Accuracy()).fit()", "higher_is_better = True"),
    ("trainer(eval_data=Vector).fit()", "hand over an object: Vector()"),
    ("trainer(eval_data=Vector()).fit()", "a metric is one number"),
    ("trainer(eval_data=Number()).fit()", "must return a dict"),
    ("trainer(patience=2).fit()", "there is no eval_data"),
    ("trainer(callbacks=[ShortHook])", "hand over an object: ShortHook()"),
    ("trainer(callbacks=[print])", "no brim.Callback"),
    ("trainer(callbacks=[LightningHook()])", "the hook here is on_step_end"),
    ("trainer(callbacks=[ShortHook()])", "def on_step_end(self, trainer, step, loss)"),
    ("trainer(eval_data=type('Max', (Vector,), {'higher_is_better': 'min'})()).fit()", "must be True or False"),
    ("trainer(eval_data=type('Two', (Vector,), {'evaluate': lambda self, model, data: 0})()).fit()",
     "def evaluate(self, model)"),
    # settings
    ("trainer(optimizer=['a', 'b']).fit()", "optimizer= is a list"),
    ("trainer(optimizer='adamm').fit()", "did you mean 'Adam'?"),
    ("trainer(optimizer=lambda: None).fit()", "optimizer=lambda parameters:"),
    ("trainer(optimizer=torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)).fit()", "none of the parameters"),
    ("trainer(optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1)).fit()", "the list of parameters"),
    ("trainer(optimizer='SparseAdam').fit()", "use Adam or AdamW"),
    ("trainer(scheduler=lambda epoch: 0.95**epoch).fit()", "LambdaLR(optimizer, lambda step: ...)"),
    ("trainer(lr=lambda step: 0.1)", "one that changes is scheduler="),
    ("trainer(lr={'head': 1e-3})", "'lr_of'"),
    ("trainer(precision=64)", "model.double()"),
    ("brim.Schedule('cosine', warmup_steps=100)", "brim.Schedule('linear', warmup=100)"),
    ("brim.Schedule('cosine', warmpu=100)", "did you mean warmup=?"),
    ("trainer(scheduler='cosin')", "'cosine'"),
    ("trainer(scheduler=torch.optim.lr_scheduler.StepLR).fit()", "lambda optimizer: StepLR(optimizer, step_size=...)"),
    ("trainer(scheduler=3).fit()", "scheduler= is an int"),
    ("trainer(epochs='3')", "must be a whole number"),
    ("trainer(lr='1e-3')", "must be a number above 0"),
    ("trainer(device='gpu')", "is not a device"),
    ("trainer(device='cuda:99')", "GPUs are visible"),
    ("trainer(precision='fp8')", "is not known"),
    ("trainer(strategy='ddp_spawn')", "is not known"),
    ("trainer(deterministic='no')", "True or False"),
    ("trainer(run_dir='')", "names no folder"),
    ("trainer(run_dir=3)", "is no path"),
    # layers that are not registered, losses of three tensors
    ("trainer(Listed()).fit()", "in a list or dict are its own as nn.ModuleList"),
    ("trainer(loss_fn=nn.TripletMarginLoss()).fit()", "TripletMarginLoss needs 'negative' as well, and a criterion"),
    ("trainer(clip_norm=0)", "or None for no clipping"),
    ("trainer(eval_data=(X, Y), monitor='zeal').fit()", "monitor='zeal' is none of loss"),
    ("brim.cached([X], 'cache', abs)", "transform is a str and folder a builtin_function_or_method; the order is"),
    ("brim.cached([X], abs, 3)", "folder an int; the order is"),
    ("brim.cached([X], abs, 'cache', num_workers='auto')", "num_workers='auto' must be a whole number of at least 0"),
    ("trainer().predict(X, Y)", "... names no part of an output"),
    ("brim.Loader((X, Y), collate_fn=3)", "collate_fn=3 is no function"),
    ("brim.Loader((X, Y)).dataset", "batches by len(loader)"),
    ("trainer(run_dir='a').fit() and trainer(run_dir='a').fit()", "continue it with fit(resume='a')"),
    ("trainer(run_dir='x' * 300).fit()", "choose another place with run_dir="),
]  # fmt: skip


@pytest.mark.parametrize(("code", "words"), MISTAKES, ids=[code for code, _ in MISTAKES])
def test_a_mistake_gets_one_sentence(code, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(brim.BrimError) as caught:
        exec(code, NAMES)
    told = str(caught.value)
    assert words in told
    assert "\n" not in told


def test_there_are_more_than_sixty_of_them():
    assert len({code for code, _ in MISTAKES}) == len(MISTAKES) > 250


WARNED_OF = [
    ("trainer(eval_data=(X, Y), monitor='loss', mode='max').fit()", "mode='max' takes the highest loss as the best"),
    ("trainer(epochs=3, max_steps=10).fit()", "epochs=3, which would end after 3 steps, has no effect"),
    ("trainer().fit(model_path='model.pt')", "has no effect without save_model=True"),
    ("brim.Step(Net(), torch.optim.SGD(Net().parameters(), lr=1.0), nn.MSELoss())", "none of the parameters of Net"),
]


@pytest.mark.parametrize(("code", "words"), WARNED_OF, ids=[code for code, _ in WARNED_OF])
def test_what_has_no_effect_is_warned_of(code, words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    eval(code, NAMES)
    said = capfd.readouterr()
    assert words in " ".join(f"{said.out} {said.err}".split())


TAKEN_AS_MEANT = [
    "trainer(epochs=np.int64(2), lr=np.float32(0.1), max_steps=torch.tensor(1))",
    "trainer(precision=32)",
    "trainer(precision='bf16')",
    "trainer(device='auto')",
    "trainer(callbacks=ShortHook.__mro__[1]())",
    "trainer(callbacks=None)",
    "trainer(data=(FRAME, Y.tolist()))",
    "trainer(loss_fn=lambda a, b: ((a - b) ** 2).mean())",
    "trainer(torch.compile(Net(), backend='eager'))",
    "trainer(torch.jit.script(OwnLoss()), X, loss_fn=None)",
    "trainer(type('N' * 300, (Net,), {})())",
]


@pytest.mark.parametrize("code", TAKEN_AS_MEANT)
def test_what_can_only_mean_one_thing_is_taken_so(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert eval(code, NAMES).fit().steps >= 1
