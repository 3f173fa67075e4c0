import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/**
 * Runs one Elasticsearch node from the published jars: RunElasticsearch SETTING=VALUE ...
 *
 * <p>The distribution's own start does the same and also switches on Java modules and the security manager's successor,
 * which need files that are not published as jars. Prints "node started" when requests are answered.
 */
public class RunElasticsearch {
    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder();
        for (String argument : arguments) {
            int separator = argument.indexOf('=');
            settings.put(argument.substring(0, separator), argument.substring(separator + 1));
        }
        Path configuration = Path.of(settings.get("path.data")).resolveSibling("config");
        Environment environment =
            InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), configuration, () -> "node");
        LogConfigurator.configureWithoutConfig(environment.settings());
        LogConfigurator.configureESLogging();
        var modules = PluginsLoader.loadModulesBundles(environment.modulesDir(), false);
        Node node = new Node(environment, PluginsLoader.createPluginsLoader(modules, Set.of(), Map.of(), false));
        try {
            node.start();
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1); // the node's other threads would keep the process alive
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
        System.out.println("node started");
        Thread.currentThread().join();
    }

    private static void close(Node node) {
        try {
            node.close();
        } catch (Exception problem) {
            problem.printStackTrace();
        }
    }
}
