# Two commands: `make quickstart` and `make test`. Each makes its own environment in .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
QUICKSTART := runs/quickstart
export MPLBACKEND ?= Agg

.PHONY: quickstart test test-avx2 test-slow test-hostile test-perf lint clean

# Reads real text that every machine has after installation (the documentation inside the installed
# packages), pre-trains a small ConvBERT on it, and says what was learned; then fine-tunes it, and a
# network of random weights, on a small task from the same text; exports the better one and asks it
# about three passages. Interrupt it whenever you like and run it again: it goes on.
quickstart: .venv/installed
	$(BIN)/python build_pretraining_data.py --corpus_format installed_documentation \
	    --vocab_size 8192 --output_dir $(QUICKSTART)
	$(BIN)/python run_pretraining.py --data_dir $(QUICKSTART) --model_name convbert-tiny \
	    --recipe configs/quickstart.json --do_eval
	$(BIN)/python -m analysis.learned --data_dir $(QUICKSTART) \
	    --model_dir $(QUICKSTART)/models/convbert-tiny
	$(BIN)/python -m finetune.documentation_order --data_dir $(QUICKSTART) \
	    --output_dir $(QUICKSTART)/word_order
	$(BIN)/python run_finetuning.py --model_dir $(QUICKSTART)/models/convbert-tiny \
	    --task $(QUICKSTART)/word_order/task.json --recipe configs/quickstart_finetune.json \
	    --init pretrained,random
	rm -rf $(QUICKSTART)/savedmodel
	$(BIN)/python export_savedmodel.py --output_dir $(QUICKSTART)/savedmodel \
	    --model_dir $(QUICKSTART)/models/convbert-tiny/finetuning/word_order
	head -n 3 $(QUICKSTART)/word_order/dev.jsonl
	head -n 3 $(QUICKSTART)/word_order/dev.jsonl | \
	    $(BIN)/python -m serving.predict --model $(QUICKSTART)/savedmodel
	@echo "Ask more: echo 'Some passage of 16 to 40 words.' |" \
	    "$(BIN)/python -m serving.predict --model $(QUICKSTART)/savedmodel"

# A module at a time to each of two workers, in the order of tests/conftest.py.
test: .venv/installed-dev
	$(BIN)/python -m pytest -m "not slow and not perf and not hostile" -n 2 --dist loadscope --no-loadscope-reorder

# The same as on a CPU without AVX-512, whatever this one has: there TensorFlow computes bfloat16
# without oneDNN.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 XLA_FLAGS=--xla_cpu_max_isa=AVX2
test-avx2: .venv/installed-dev
	$(AVX2) $(MAKE) test
	$(AVX2) TF_ENABLE_ONEDNN_OPTS=0 $(BIN)/python -m pytest -n 2 --dist loadscope \
	    -m "bfloat16 and not slow and not perf and not hostile"

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow -n 2 --dist loadscope

# Text and requests made to break the builder and served models; prints what became of each.
test-hostile: .venv/installed-dev
	$(BIN)/python -m pytest -m hostile -s

# What XLA and oneDNN make of the code on a CPU with AVX-512.
test-perf: .venv/installed-dev
	$(BIN)/python -m pytest -m perf

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.imports_check

clean:
	rm -rf .venv runs

.venv/installed: requirements.txt constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -r requirements.txt -c constraints.txt
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt -c constraints.txt
	touch $@
