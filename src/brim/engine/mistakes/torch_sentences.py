"""What torch says where data and model do not fit together, by what it means and what to write."""

_INPUTS = "the inputs are {0} and the weights {1}: hand over x.{2} (a DataFrame or array: x.astype('{1}'))"
_PICTURES = (
    "the inputs are uint8, pictures as they are stored, and the weights {0}: hand over x.float() / 255, or what the "
    "model was made for (torchvision: v2.ToDtype(torch.float32, scale=True))"
)
_ONE_BY_ONE = (
    "the outputs have shape ({1}) and the targets ({0}), and this loss compares them one by one: give the targets the "
    "shape of the outputs, y.reshape(-1, 1) for a column (a Series: y.to_frame()), or let the model return a vector: "
    "squeeze(1)"
)
_TARGET = "the targets are {0}, and this loss takes {1}: hand over y.{2}"
_LABELS = (
    "the targets are {0}, and cross entropy takes class numbers in int64 of shape (N,), or probabilities in the shape "
    "of the output: hand over y.long() (a Series or array: y.astype('int64'))"
)

_BF16 = (
    "a layer with weights in bfloat16 gets float32: precision='bf16-true' casts the batches, and what the model, the "
    "loss or an evaluator of your own makes or reads itself is yours to cast: make it with dtype=x.dtype, or hand it "
    "over with .to(next(model.parameters()).dtype)"
)
_BF16_INPUTS = "the inputs are {0}, and the layer computes in bfloat16: hand over x.float()"

# What torch says, and the sentence; groups that are names of dtypes become those that Python writes.
SENTENCES: tuple[tuple[str, str], ...] = (
    (r"[Ii]nput type \((?:unsigned char|(?:torch\.)?(?:cuda\.)?ByteTensor)\) and (?:bias|weight) type "
     r"\((?:c10::)?(?:torch\.)?(?:cuda\.)?(\w+?)(?:Tensor)?\) should be the same", _PICTURES),
    (r"expected scalar type Byte but found (\w+)", _PICTURES),
    (r"mat1 and mat2 must have the same dtype, but got Float and BFloat16", _BF16),
    (r"expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16", _BF16),
    (r"[Ii]nput type \((?:float|torch\.(?:cuda\.)?FloatTensor)\) and (?:bias|weight) type "
     r"\((?:c10::BFloat16|torch\.(?:cuda\.)?BFloat16Tensor)\) should be the same", _BF16),
    (r"mixed dtype \(CPU\): expect parameter to have scalar type of Float", _BF16),
    (r"could not create a primitive descriptor for the LSTM",
     "an LSTM gets states of another dtype than its weights, perhaps: make them with dtype=x.dtype, as in "
     "torch.zeros(..., dtype=x.dtype, device=x.device)"),
    (r"mat1 and mat2 must have the same dtype, but got (\w+) and BFloat16", _BF16_INPUTS),
    (r"expected m1 and m2 to have the same dtype, but got: (\w+(?: \w+)?) != c10::BFloat16", _BF16_INPUTS),
    (r"mat1 and mat2 must have the same dtype, but got (\w+) and (\w+)", _INPUTS),
    (r"expected m1 and m2 to have the same dtype, but got: (\w+) != (\w+)", _INPUTS),
    (r"[Ii]nput type \(?(?:torch\.)?(?:cuda\.)?(\w+?)(?:Tensor)?\)? and (?:bias|weight) type "
     r"\(?(?:torch\.)?(?:cuda\.)?(\w+?)(?:Tensor)?\)? should be the same", _INPUTS),
    (r"Found dtype (\w+) but expected (\w+)", _TARGET),
    (r"Subtraction, the `-` operator, with (?:two bool tensors|a bool tensor) is not supported",
     "a loss subtracts and gets a bool tensor, the targets most often: hand over y.float()"),
    (r"result type (\w+) can't be cast to the desired output type (?:Long|Int|Byte|Bool)",
     "the targets are whole numbers, and this loss takes {0}: hand over y.{1}"),
    (r"expected target dtype to be Long or Byte, but got (\w+)", _LABELS),
    (r"expected scalar type Long but found (\w+)", _LABELS),
    (r"[Ee]xpected floating point type for target with class probabilities, got (\w+)",
     "the targets are {0} in the shape of the output, where cross entropy takes probabilities: hand over y.float(), or "
     "class numbers of shape (N,)"),
    (r"0D or 1D target tensor expected, multi-target not supported",
     "the targets have two dimensions or more, and cross entropy takes class numbers of shape (N,), or probabilities "
     "in the shape of the output: hand over y.squeeze(1) of a column, y.argmax(1) of one-hot rows"),
    (r"Target (-?\d+) is out of bounds",
     "a target is {0}, and the model has no such class: its outputs must be more than the largest target, and targets "
     "count from 0 (ignore_index= leaves some out)"),
    (r"Inference tensors cannot be saved for backward",
     "a tensor was made under torch.inference_mode(), of the data perhaps, and cannot be trained on: make it under "
     "torch.no_grad(), or hand over x.clone()"),
    (r"index out of range in self",
     "an embedding gets an index that its table does not have: num_embeddings= must be more than the largest index, "
     "and indices count from 0; a table of positions has as many as the longest text may be long (truncation=True and "
     "max_length= of a tokenizer)"),
    (r"The expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at non-singleton dimension "
     r"(\d+)",
     "a tensor that has {1} in dimension {2} is needed with {0} there: in a model of texts, most often, these are "
     "longer than its positions (max_position_embeddings of its config): truncate them (truncation=True and "
     "max_length= of a tokenizer)"),
    (r"device-side assert triggered",
     "an index on the GPU is out of range: most often a target that is no class of the model (they count from 0), or "
     "an index beyond the table of an embedding; this process can use its GPU no more: start it anew, with "
     "device='cpu' to be told which one it is"),
    (r"Target size \(torch\.Size\(\[(.*?)\]\)\) must be the same as input size \(torch\.Size\(\[(.*?)\]\)\)",
     _ONE_BY_ONE),
    (r"Using a target size \(torch\.Size\(\[(.*?)\]\)\) that is different to the input size "
     r"\(torch\.Size\(\[(.*?)\]\)\)", _ONE_BY_ONE),
    (r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)",
     "the model returns {0} outputs for {1} targets: let forward keep the samples apart, as in x.flatten(1); a model "
     "that labels tokens takes a label for each (labels as long as input_ids)"),
    (r"expected input\[\d+, \d+, \d+, (\d+)\] to have \1 channels",
     "the pictures have their {0} channels last, and a convolution takes them second: hand over x.permute(0, 3, 1, 2)"),
    (r"expected input\[1, (\d+), \d+, \d+\] to have 1 channels, but got \1 channels",
     "a convolution takes 1 channel and gets {0}: pictures without a dimension of channels, perhaps, which need "
     "x.unsqueeze(1); or give the layer in_channels={0}"),
    (r"expected input\[[\d, ]+\] to have (\d+) channels, but got (\d+) channels",
     "a convolution takes {0} channels, in the second dimension, and gets {1}: give the data {0}, or the layer "
     "in_channels={1}"),
    (r"Expected \dD \(unbatched\) or \dD \(batched\) input to conv(\d)d, but got input of size: (\[.*?\])",
     "a convolution over {0} dimensions takes (samples, channels) and {0} more, and gets {1}: reshape the data, or add "
     "the dimension of channels with x.unsqueeze(1)"),
    (r"Expected more than 1 value per channel when training, got input size",
     "a norm has no statistics of a single sample, and a batch has but one, perhaps the last of an epoch: leave that "
     "out with drop_last=True of the loader, or choose a batch size that leaves more over"),
    (r"running_mean should contain (\d+) elements not (\d+)",
     "a norm is made for {1} features and gets {0}: make it for {0}"),
    (r"Given normalized_shape=\[(.*?)\], expected input with shape \[.*?\], but got input of size\[(.*?)\]",
     "a LayerNorm is made for ({0}) and gets a tensor of shape ({1}), of which the last dimensions must be these"),
    (r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)",
     "a recurrent layer takes {0} features and gets {1}: give the data {0}, or the layer input_size={1}"),
    (r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)",
     "two tensors that are computed with, outputs and targets perhaps, have {0} and {1} in dimension {2}: give them "
     "the same shape"),
    (r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)",
     "a layer takes {1} features and gets {0}: give the data {1}, or the layer in_features={0}"),
    (r"argument 'input' \(position 1\) must be Tensor, not ([\w.]+)",
     "a layer gets a {0} where it takes a tensor: let batches hold tensors (an HF data set: ds.with_format('torch')), "
     "and unpack what holds several in forward, or with loss_fn=lambda model, batch: ..."),
    (r"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
     r"(?:torch\.)?(?:cuda\.)?(\w+?)Tensor", "an embedding gets {0} and takes whole numbers: hand over x.long()"),
    (r"(\w*Loss)\.forward\(\) missing \d+ required positional arguments?: (.+)",
     "{0} needs {1} as well, and a criterion gets an output and a target: call it yourself in loss_fn=lambda model, "
     "batch: ..."),
    (r"(\w+)\.forward\(\) missing \d+ required positional arguments?: (.+)",
     "{0}.forward needs {1} as well: let batches be ((a, b), target), or pass loss_fn=lambda model, batch: ..."),
    (r"(\w+)\.forward\(\) takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given",
     "{0}.forward is called with {2} arguments and takes {1}, self among them: give it a parameter for each, or call "
     "the model yourself in loss_fn=lambda model, batch: ..."),
    (r"(\w+)\.forward\(\) got an unexpected keyword argument '(\w+)'",
     "{0}.forward takes no {1}: take it out of the batches, or pass loss_fn=lambda model, batch: ..."),
    (r"element 0 of tensors does not require grad",
     "the loss does not depend on the weights: it was detached, made by .item(), or computed under no_grad, as "
     "evaluations are (a loss that takes gradients itself takes them there within torch.enable_grad())"),
    (r"Expected all tensors to be on the same device",
     "a tensor is on another device than the model: make what the loss or the model uses a buffer of the model "
     "(register_buffer), or move it with .to(x.device)"),
    (r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available",
     "something is moved to a GPU, by .cuda() or device='cuda', and there is none: write .to(x.device) of what it is "
     "computed with, in the model, in the loss and in the data"),
    (r"Calculated padded input size per channel: \((.*?)\)\. Kernel size: \((.*?)\)\. Kernel size can't be greater",
     "a convolution of {1} gets pictures of {0}, padding included: give it larger ones, a smaller kernel or padding"),
    (r"Given input size: \((.*?)\)\. Calculated output size: \(.*?\)\. Output size is too small",
     "a pooling layer gets ({0}), which is smaller than what it pools: give the model larger pictures, or pool less"),
    (r"(conv\dd)\(\) received an invalid combination of arguments - got \((tuple|list|dict|str),",
     "{0} gets a {1} where it takes a tensor: let the data set return tensors, and not paths or pictures of PIL's "
     "(torchvision: v2.ToImage(), then v2.ToDtype(torch.float32, scale=True))"),
    (r"only batches of spatial targets supported \(3D tensors\) but got targets of dimension: (\d+)",
     "the targets have {0} dimensions, and cross entropy over pictures takes class numbers (N, height, width): "
     "hand over y.squeeze(1)"),
    (r"size mismatch \(got input: \[(.*?)\] ?, target: \[(.*?)\]",
     "the outputs have shape ({0}) and the targets ({1}), which must agree but for the classes: pad the convolutions, "
     "or resize the targets"),
    (r"weight tensor should be defined either for all (\d+) classes or no classes but got weight tensor of shape: "
     r"\[(.*?)\]",
     "the loss has weights for {1} classes, and the model has {0}: give it {0}"),
    (r"all elements of (?:input|target) should be between 0 and 1",
     "BCELoss takes probabilities, and gets numbers beyond 0 and 1: end the model with a sigmoid, or better use "
     "BCEWithLogitsLoss, which takes the numbers as they are; targets are 0 to 1 too"),
    (r"expected scalar type Double but found Float",
     "float64 meets float32: the inputs are float64 and the weights float32, most often: hand over x.float() (a "
     "DataFrame or array: x.astype('float32')); with a model in float64, make what is float32, class weights of the "
     "loss perhaps, float64 with .double()"),
    (r"expected scalar type (\w+) but found (\w+)",
     "a tensor is {1} where {0} is computed with, class weights of the loss perhaps: make it {0}, with .{3}"),
    (r"Can't call numpy\(\) on Tensor that requires grad",
     "numpy computes no gradients: compute the loss with torch (metrics may use numpy, on outputs.detach())"),
    (r"modified by an inplace operation",
     "a tensor that the gradient needs is changed in place before: write x = x + y for x += y, x.relu() for x.relu_(), "
     "and leave inplace=True out; torch.autograd.set_detect_anomaly(True) shows which one it is"),
    (r"kl_div: Integral inputs not supported",
     "KLDivLoss compares log-probabilities with probabilities, and gets whole numbers: for classes use "
     "nn.CrossEntropyLoss()"),
    (r"Trying to backward through the graph a second time",
     "the graph of the loss is gone: loss_fn returns the loss and leaves backward() and the optimizer to the trainer, "
     "and nothing of an earlier step may be in it (detach() it)"),
    (r"Module \[(\w+)\] is missing the required \"forward\" function",
     "{0} has no forward, or one that is spelt otherwise: write def forward(self, x) (of a list of layers: "
     "nn.Sequential(*layers)), or call what it has in loss_fn=lambda model, batch: ..."),
    (r"Could not run 'aten::linalg_vector_norm' with arguments from the 'Sparse",
     "gradients of an embedding with sparse=True have no norm that they could be clipped by: leave clip_norm out, or "
     "make it with sparse=False"),
    (r"SparseAdam does not support dense gradients",
     "SparseAdam is for embeddings with sparse=True, and other weights have dense gradients: use Adam or AdamW"),
    (r"'(\w+)' object has no attribute '(log|log_dict)'",
     "{0}.{1} is Lightning's and is not there: log with trainer.log(name, value), or return a dict that has 'loss'"),
)  # fmt: skip
