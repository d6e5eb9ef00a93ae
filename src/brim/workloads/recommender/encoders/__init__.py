"""Models of transformers that read texts: loaded, pooled, adapted, and what they made of texts kept on disk.

A name, a folder or a GGUF file comes in; a model with its tokenizer goes out, and tensors of encodings.
"""
