package headrace.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The local file system without Hadoop's native library: it sets permissions by a system call, where Hadoop's own class
 * starts the program chmod for every file. Spark writes two small files to the checkpoint for each micro-batch.
 */
public class LocalFiles extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        String text = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
            + permission.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }
}
