# Two commands: `make quickstart` and `make test`. Each makes its own environment in .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
QUICKSTART := runs/quickstart
MODEL := $(QUICKSTART)/models/convbert-tiny
# Their documentation is the corpus; requirements.txt installs all of them.
PACKAGES := numpy,scipy

.PHONY: quickstart tiny test test-avx2 test-slow test-perf test-browser test-tpu lint clean

# Pre-trains a small ConvBERT on text that every machine has after the installation, fine-tunes it and
# a network of random weights on a small task, exports the better one, and says what was learned.
# Interrupted, it resumes when it is run again.
quickstart: .venv/installed
	@echo "1/6 data: the documentation of $(PACKAGES)"
	$(BIN)/python build_pretraining_data.py --corpus_format installed_documentation \
	    --corpus $(PACKAGES) --heldout_fraction 0.04 --vocab_size 4096 --max_seq_length 64 \
	    --output_dir $(QUICKSTART)
	@echo "2/6 pre-training: configs/quickstart.json"
	$(BIN)/python run_pretraining.py --data_dir $(QUICKSTART) --model_name convbert-tiny \
	    --recipe configs/quickstart.json --do_eval
	@echo "3/6 what was learned, beside n-gram baselines"
	$(BIN)/python -m convbert.examples.quickstart.learned --data_dir $(QUICKSTART) --model_dir $(MODEL) \
	    --output $(QUICKSTART)/learned.json
	@echo "4/6 fine-tuning, from the pre-trained and from random weights"
	$(BIN)/python -m convbert.examples.quickstart.word_order --data_dir $(QUICKSTART) \
	    --packages $(PACKAGES) --output_dir $(QUICKSTART)/word_order
	$(BIN)/python run_finetuning.py --model_dir $(MODEL) --init pretrained,random \
	    --task $(QUICKSTART)/word_order/task.json --recipe configs/quickstart_finetune.json
	@echo "5/6 export as a SavedModel"
	@rm -rf $(QUICKSTART)/savedmodel
	$(BIN)/python export_savedmodel.py --model_dir $(MODEL)/finetuning/word_order \
	    --output_dir $(QUICKSTART)/savedmodel
	@echo "6/6 three passages and the answers"
	head -n 3 $(QUICKSTART)/word_order/dev.jsonl
	head -n 3 $(QUICKSTART)/word_order/dev.jsonl | \
	    $(BIN)/convbert predict --model $(QUICKSTART)/savedmodel
	@$(BIN)/python -m convbert.examples.quickstart.summary $(QUICKSTART)

# The models that come with the project, `convbert.load("tiny")` and `convbert.load("tiny-word-order")`;
# see released/README.md.
TINY := runs/tiny
TINY_PACKAGES := numpy,scipy,pandas,sklearn,matplotlib
tiny: .venv/installed
	$(BIN)/convbert build-data --corpus_format installed_documentation --corpus $(TINY_PACKAGES) \
	    --heldout_fraction 0.02 --vocab_size 4096 --max_seq_length 64 --output_dir $(TINY)
	$(BIN)/convbert pretrain --data_dir $(TINY) --model_name tiny --recipe configs/tiny.json --do_eval
	$(BIN)/python -m convbert.examples.quickstart.learned --data_dir $(TINY) --model_dir $(TINY)/models/tiny
	$(BIN)/python -m convbert.examples.quickstart.word_order --data_dir $(TINY) \
	    --packages $(TINY_PACKAGES) --output_dir $(TINY)/word_order
	$(BIN)/convbert finetune --model_dir $(TINY)/models/tiny --task $(TINY)/word_order/task.json \
	    --recipe configs/quickstart_finetune.json --hparams '{"num_train_epochs": 2}'
	rm -rf $(TINY)/litert $(TINY)/litert_word_order
	$(BIN)/convbert export --model_dir $(TINY)/models/tiny --format litert --weights int8 \
	    --output_dir $(TINY)/litert
	$(BIN)/convbert export --model_dir $(TINY)/models/tiny/finetuning/word_order --format litert \
	    --weights int8 --output_dir $(TINY)/litert_word_order
	cp $(TINY)/litert/model.tflite released/tiny.tflite
	cp $(TINY)/litert_word_order/model.tflite released/tiny-word-order.tflite
	$(BIN)/convbert evaluate --model tiny-word-order --input $(TINY)/word_order/dev.jsonl

# Two workers take one module at a time. One that dies ends the run, which otherwise never ends.
WORKERS := -n 2 --dist loadscope --max-worker-restart=0

# In the order of tests/conftest.py.
test: .venv/installed-dev
	$(BIN)/python -m pytest -m "not slow and not perf and not tpu and not browser" $(WORKERS) --no-loadscope-reorder

# The same as on a CPU without AVX-512, where TensorFlow computes bfloat16 without oneDNN.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 XLA_FLAGS=--xla_cpu_max_isa=AVX2
test-avx2: .venv/installed-dev
	$(AVX2) $(MAKE) test
	$(AVX2) TF_ENABLE_ONEDNN_OPTS=0 $(BIN)/python -m pytest $(WORKERS) \
	    -m "bfloat16 and not slow and not perf and not tpu"

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow $(WORKERS)

# What XLA and oneDNN make of the code on a CPU with AVX-512.
test-perf: .venv/installed-dev
	$(BIN)/python -m pytest -m perf

# The page of `convbert view`, in headless Chromium (`apt-get install chromium`).
test-browser: .venv/installed-dev
	$(BIN)/python -m pytest -m browser

# What the compiler of TPU v5e makes of tiny steps. It needs no TPU, and an environment of its own.
test-tpu: .venv/installed-dev .venv-tpu/installed
	TPU_PYTHON=.venv-tpu/bin/python $(BIN)/python -m pytest -m tpu -s

# Style, format, types, the direction of imports, and the language.
lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p .venv/src && ln -sfn ../.. .venv/src/convbert
	MYPYPATH=.venv/src $(BIN)/mypy -p convbert
	$(BIN)/python -m tests.imports_check
	$(BIN)/python -m tests.language_check

clean:
	rm -rf .venv .venv-tpu runs

.venv-tpu/installed: requirements-tpu-compile.txt
	$(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python -m pip install --quiet -r requirements-tpu-compile.txt
	touch $@

.venv/installed: requirements.txt constraints.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -r requirements.txt
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet -e '.[dev]' -c constraints.txt
	touch $@
