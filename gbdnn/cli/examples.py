"""The end of each command's help text: how it is called."""

__all__ = ["EXAMPLES"]

EXAMPLES = {
    "challenge": """
gbdnn challenge
gbdnn challenge --neurons 4096 --layers 480 --repeat 3 --json outcome.json
gbdnn challenge --data DIR --inputs 500
gbdnn challenge --inputs 60000 --workers 2
""",
    "infer": """
gbdnn infer net images.tsv.gz -o activations.tsv.gz
gbdnn infer net X -o Y --memory 4GiB
gbdnn infer model.onnx X -o ids.tsv --categories
gbdnn infer classifier.onnx X.npy -o labels.tsv --argmax --logits
mpiexec -n 4 gbdnn infer net X -o Y --pipeline
""",
    "train": """
gbdnn train images-idx3-ubyte.gz labels-idx1-ubyte.gz -o net
gbdnn train X.npy y.npy -o net --rewire rigl --plot run.png
gbdnn train X.npy y.npy -o better --from net --checkpoint run.ckpt
""",
    "generate": """
gbdnn generate net --neurons 65536 --layers 1920
gbdnn generate X --features digits --neurons 65536 --inputs 60000
gbdnn generate net.onnx --radices 2,3 --radices 6
""",
    "convert": """
gbdnn convert DIR/DNN/neuron1024 net
gbdnn convert net files --to tsv
gbdnn convert model.onnx net --force
""",
    "info": """
gbdnn info net
gbdnn info net --inputs 20000
gbdnn info Y --check
gbdnn info --machine --json
""",
}
