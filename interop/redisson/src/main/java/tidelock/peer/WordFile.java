package tidelock.peer;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A file of three little-endian numbers that only the holder may touch: who is inside, a counter, the last token. */
final class WordFile implements AutoCloseable {
    static final int INSIDE = 0;
    static final int COUNTER = 8;
    static final int TOKEN = 16;

    private final FileChannel file;

    WordFile(String path) throws IOException {
        file = FileChannel.open(Path.of(path), StandardOpenOption.READ, StandardOpenOption.WRITE);
    }

    long read(int at) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
        if (file.read(bytes, at) != 8) {
            throw new IOException("the word file is shorter than 24 bytes");
        }
        return bytes.getLong(0);
    }

    void write(int at, long value) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(0, value);
        file.write(bytes, at);
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
