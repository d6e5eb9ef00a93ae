from brim.record.loggers import CsvLogger, Logger, MLflowLogger, TensorBoardLogger, WandbLogger


def test_every_logger_of_brims_is_one(tmp_path):
    assert all(
        isinstance(one, Logger)
        for one in (CsvLogger(tmp_path), TensorBoardLogger(tmp_path), WandbLogger(), MLflowLogger())
    )
