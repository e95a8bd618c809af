import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileSnap;

/** Changes the number that the server gives to the next sequential node under a path, in the newest snapshot. */
public class CountTo {
    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        FileSnap snapshots = new FileSnap(folder);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
        long zxid = snapshots.deserialize(tree, sessions);
        tree.getNode(args[1]).stat.setCversion(Integer.parseInt(args[2]));
        File newest = new File(folder, "snapshot." + Long.toHexString(zxid));
        snapshots.serialize(tree, sessions, newest, true);
    }
}
