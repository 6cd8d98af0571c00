// An object store for tests: bucket://NAME/KEY is the file $BUCKET_ROOT/NAME/KEY of this machine.
//
// It has what gs:// and s3:// have, and lacks what they lack: an object appears when it is closed,
// folders need not be made, listings end folders with a slash; there is no append, and no renaming
// of folders. A bucket is a folder of $BUCKET_ROOT; that called `forbidden` denies everything.
// Objects whose path contains $BUCKET_FULL cannot be written, as in a bucket whose quota is used up.

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tensorflow/c/experimental/filesystem/filesystem_interface.h"

namespace fs = std::filesystem;

static std::string Bucket(const std::string& url) {
  const std::string rest = url.substr(strlen("bucket://"));
  return rest.substr(0, rest.find('/'));
}

// The local file of a URL; sets NOT_FOUND or PERMISSION_DENIED where its bucket is of no use.
static std::string Local(const char* url, TF_Status* status) {
  const char* root = getenv("BUCKET_ROOT");
  const std::string bucket = Bucket(url);
  TF_SetStatus(status, TF_OK, "");
  if (bucket == "forbidden") {
    TF_SetStatus(status, TF_PERMISSION_DENIED, "403: no access to the bucket forbidden");
  } else if (root == nullptr || !fs::is_directory(fs::path(root) / bucket)) {
    TF_SetStatus(status, TF_NOT_FOUND, ("404: there is no bucket " + bucket).c_str());
  }
  std::string path = std::string(root ? root : "") + "/" + (url + strlen("bucket://"));
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

static bool Failed(TF_Status* status) { return TF_GetCode(status) != TF_OK; }

static void Errno(TF_Status* status, const std::string& path) {
  TF_SetStatusFromIOError(status, errno, path.c_str());
}

// ---------------------------------------------------------------- files

struct Reader {
  FILE* file;
};

static void CloseReader(TF_RandomAccessFile* file) {
  auto* reader = static_cast<Reader*>(file->plugin_file);
  fclose(reader->file);
  delete reader;
}

static int64_t Read(const TF_RandomAccessFile* file, uint64_t offset, size_t n, char* buffer,
                    TF_Status* status) {
  auto* reader = static_cast<Reader*>(file->plugin_file);
  const ssize_t got = pread(fileno(reader->file), buffer, n, offset);
  if (got < 0) {
    Errno(status, "read");
    return 0;
  }
  TF_SetStatus(status, got < static_cast<ssize_t>(n) ? TF_OUT_OF_RANGE : TF_OK, "");
  return got;
}

struct Writer {
  std::string path, content;
  bool full, closed;
};

static void FreeWriter(TF_WritableFile* file) { delete static_cast<Writer*>(file->plugin_file); }

static void Append(const TF_WritableFile* file, const char* buffer, size_t n, TF_Status* status) {
  static_cast<Writer*>(file->plugin_file)->content.append(buffer, n);
  TF_SetStatus(status, TF_OK, "");
}

static int64_t Tell(const TF_WritableFile* file, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
  return static_cast<Writer*>(file->plugin_file)->content.size();
}

// The whole object so far, under its name at once.
static void Upload(const TF_WritableFile* file, TF_Status* status) {
  auto* writer = static_cast<Writer*>(file->plugin_file);
  if (writer->full) {
    TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "429: the quota of the bucket is used up");
    return;
  }
  TF_SetStatus(status, TF_OK, "");
  std::error_code error;
  const fs::path path = writer->path, part = path.string() + ".upload";
  fs::create_directories(path.parent_path(), error);
  std::ofstream(part, std::ios::binary) << writer->content;
  fs::rename(part, path, error);
  if (error) TF_SetStatus(status, TF_INTERNAL, error.message().c_str());
}

static void Close(const TF_WritableFile* file, TF_Status* status) {
  auto* writer = static_cast<Writer*>(file->plugin_file);
  TF_SetStatus(status, TF_OK, "");
  if (!writer->closed) Upload(file, status);
  writer->closed = true;
}

// ---------------------------------------------------------------- the store

static void Init(TF_Filesystem* filesystem, TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }
static void Cleanup(TF_Filesystem* filesystem) {}

static void NewReader(const TF_Filesystem*, const char* url, TF_RandomAccessFile* file,
                      TF_Status* status) {
  const std::string path = Local(url, status);
  if (Failed(status)) return;
  FILE* opened = fs::is_directory(path) ? nullptr : fopen(path.c_str(), "rb");
  if (opened == nullptr) {
    TF_SetStatus(status, TF_NOT_FOUND, (std::string("404: no object ") + url).c_str());
    return;
  }
  file->plugin_file = new Reader{opened};
}

static void NewWriter(const TF_Filesystem*, const char* url, TF_WritableFile* file,
                      TF_Status* status) {
  const std::string path = Local(url, status);
  if (Failed(status)) return;
  const char* sign = getenv("BUCKET_FULL");
  const bool full = sign != nullptr && path.find(sign) != std::string::npos;
  file->plugin_file = new Writer{path, "", full, false};
}

static void NewAppender(const TF_Filesystem*, const char* url, TF_WritableFile*,
                        TF_Status* status) {
  TF_SetStatus(status, TF_UNIMPLEMENTED, (std::string("no append: ") + url).c_str());
}

static void CreateDir(const TF_Filesystem*, const char* url, TF_Status* status) {
  const std::string path = Local(url, status);
  if (Failed(status)) return;
  std::error_code error;
  fs::create_directories(path, error);
  if (error) TF_SetStatus(status, TF_FAILED_PRECONDITION, error.message().c_str());
}

static void DeleteFile(const TF_Filesystem*, const char* url, TF_Status* status) {
  const std::string path = Local(url, status);
  if (!Failed(status) && unlink(path.c_str()) != 0) Errno(status, url);
}

static void DeleteDir(const TF_Filesystem*, const char* url, TF_Status* status) {
  const std::string path = Local(url, status);
  if (!Failed(status) && rmdir(path.c_str()) != 0) Errno(status, url);
}

static void Rename(const TF_Filesystem*, const char* source, const char* target,
                   TF_Status* status) {
  const std::string from = Local(source, status);
  if (Failed(status)) return;
  const std::string to = Local(target, status);
  if (Failed(status)) return;
  if (fs::is_directory(from)) {
    TF_SetStatus(status, TF_UNIMPLEMENTED, "folders cannot be renamed");
    return;
  }
  std::error_code error;
  fs::create_directories(fs::path(to).parent_path(), error);
  fs::rename(from, to, error);
  if (error) TF_SetStatus(status, TF_NOT_FOUND, error.message().c_str());
}

static void Exists(const TF_Filesystem*, const char* url, TF_Status* status) {
  const std::string path = Local(url, status);
  if (!Failed(status) && !fs::exists(path)) TF_SetStatus(status, TF_NOT_FOUND, url);
}

static void Stat(const TF_Filesystem*, const char* url, TF_FileStatistics* stats,
                 TF_Status* status) {
  const std::string path = Local(url, status);
  if (Failed(status)) return;
  struct stat found;
  if (stat(path.c_str(), &found) != 0) {
    TF_SetStatus(status, TF_NOT_FOUND, url);
    return;
  }
  stats->length = found.st_size;
  stats->mtime_nsec = found.st_mtim.tv_sec * 1000000000LL + found.st_mtim.tv_nsec;
  stats->is_directory = S_ISDIR(found.st_mode);
}

static int64_t Size(const TF_Filesystem* filesystem, const char* url, TF_Status* status) {
  TF_FileStatistics stats;
  Stat(filesystem, url, &stats, status);
  return Failed(status) ? -1 : stats.length;
}

static char* Copied(const std::string& text) { return strdup(text.c_str()); }

static char* TranslateName(const TF_Filesystem*, const char* url) { return Copied(url); }

static int Children(const TF_Filesystem*, const char* url, char*** entries, TF_Status* status) {
  const std::string path = Local(url, status);
  if (Failed(status)) return -1;
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    names.push_back(entry.path().filename().string() + (entry.is_directory() ? "/" : ""));
  }
  if (error) {
    TF_SetStatus(status, TF_NOT_FOUND, url);
    return -1;
  }
  *entries = static_cast<char**>(calloc(names.size() + 1, sizeof(char*)));
  for (size_t i = 0; i < names.size(); ++i) (*entries)[i] = Copied(names[i]);
  return names.size();
}

static void* Allocate(size_t size) { return calloc(1, size); }

template <typename T>
static T* New() {
  return static_cast<T*>(Allocate(sizeof(T)));
}

extern "C" void TF_InitPlugin(TF_FilesystemPluginInfo* info) {
  info->plugin_memory_allocate = Allocate;
  info->plugin_memory_free = free;
  info->num_schemes = 1;
  TF_FilesystemPluginOps* ops = info->ops = New<TF_FilesystemPluginOps>();
  TF_SetFilesystemVersionMetadata(ops);
  ops->scheme = Copied("bucket");
  ops->random_access_file_ops = New<TF_RandomAccessFileOps>();
  ops->random_access_file_ops->cleanup = CloseReader;
  ops->random_access_file_ops->read = Read;
  ops->writable_file_ops = New<TF_WritableFileOps>();
  ops->writable_file_ops->cleanup = FreeWriter;
  ops->writable_file_ops->append = Append;
  ops->writable_file_ops->tell = Tell;
  ops->writable_file_ops->flush = Upload;
  ops->writable_file_ops->sync = Upload;
  ops->writable_file_ops->close = Close;
  TF_FilesystemOps* store = ops->filesystem_ops = New<TF_FilesystemOps>();
  store->init = Init;
  store->cleanup = Cleanup;
  store->new_random_access_file = NewReader;
  store->new_writable_file = NewWriter;
  store->new_appendable_file = NewAppender;
  store->create_dir = store->recursively_create_dir = CreateDir;
  store->delete_file = DeleteFile;
  store->delete_dir = DeleteDir;
  store->rename_file = Rename;
  store->path_exists = Exists;
  store->stat = Stat;
  store->get_file_size = Size;
  store->translate_name = TranslateName;
  store->get_children = Children;
}
