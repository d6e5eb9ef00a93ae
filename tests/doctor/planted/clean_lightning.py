# cause: none
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(784, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 784))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = torch.nn.functional.mse_loss(self.net(x), x)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        self.log("valid", torch.nn.functional.mse_loss(self.net(x), x))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2, momentum=0.9)


if __name__ == "__main__":
    torch.set_num_threads(1)
    train = DataLoader(TensorDataset(torch.rand(8192, 784)), batch_size=256, shuffle=True)
    valid = DataLoader(TensorDataset(torch.rand(256, 784)), batch_size=256)
    trainer = lightning.Trainer(max_epochs=1000, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(Autoencoder(), train, valid)
